"""Installing in a host as a transaction: journaled before it happens, undone completely."""
