"""What the routes call: every change of a study passes here, is written with its author, and then carried out."""
