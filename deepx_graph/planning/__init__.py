"""Plans made for a program: what devices and networks cost, shardings by integer programming, stages and schedules of pipelines."""
