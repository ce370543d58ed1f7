"""HLO as protocol buffers: modules, dumps with them, snapshots of runs; read as the syntax tree that the parser of text gives."""
