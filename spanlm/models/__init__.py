"""Language models: embedding → encoder → memory → head. `interfaces` is the contract."""
