"""The decoding engine: torch and transformers only; imports neither gradio nor plotly."""
