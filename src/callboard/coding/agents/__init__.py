"""A job: its request, its phases, what each must show, and what it hands over."""
