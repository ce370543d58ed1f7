"""What two operators of a model, taken together, are: by what they do."""
