"""How well changes of level are found: public annotated series, the product and its peers."""
