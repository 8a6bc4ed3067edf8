"""What crosses to the page and to files: the contract with TypeScript, figures, tables and panels as plain data."""
