"""Speed, measured: this machine's ceiling, a textbook training step, and this project's, in one process in turn."""
