"""What is shown of studies and of workloads."""
