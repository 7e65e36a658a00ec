"""What users tell a running search, through files in the run's inbox; the driver alone reads and answers them."""
