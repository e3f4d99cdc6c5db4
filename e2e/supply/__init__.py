"""What the project is made of: locked dependencies with hashes, their licences, known faults and bills of materials."""
