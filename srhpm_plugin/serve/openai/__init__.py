"""OpenAI's API and Anthropic's messages, handed through to the engine of the model named."""
