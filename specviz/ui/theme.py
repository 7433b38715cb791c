"""Gradio's own controls in the page's colours; the same values stand in static/page.css.

System fonts only, so that nothing is fetched. Held by tests/browser/conftest.py, which
fails every test whose page asks another host.
"""

from __future__ import annotations

import gradio as gr

_ACCENT = gr.themes.Color(
    "#F1F2FE",
    "#E2E5FD",
    "#C9CEFB",
    "#A9B1F7",
    "#8993F1",
    "#6C78E6",
    "#4C57D6",
    "#3A45C8",
    "#30399F",
    "#272E7C",
    "#1D2258",
)
_GREY = gr.themes.Color(
    "#FAFAF8",
    "#F3F2EE",
    "#E4E2DC",
    "#CFCCC4",
    "#9DA0A8",
    "#71767F",
    "#565B66",
    "#3C414C",
    "#262A35",
    "#191C24",
    "#12141A",
)

THEME = gr.themes.Base(
    primary_hue=_ACCENT,
    secondary_hue=_ACCENT,
    neutral_hue=_GREY,
    font=["system-ui", "sans-serif"],
    font_mono=["ui-monospace", "monospace"],
    radius_size=gr.themes.sizes.radius_md,
).set(
    body_background_fill="#FAFAF8",
    body_background_fill_dark="#12141A",
    body_text_color="#1B1D22",
    body_text_color_dark="#E9EAEE",
    body_text_color_subdued="#565B66",
    body_text_color_subdued_dark="#A3A9B6",
    block_background_fill="transparent",
    block_background_fill_dark="transparent",
    block_border_width="0px",
    block_padding="0px",
    block_info_text_color="#565B66",
    block_info_text_color_dark="#A3A9B6",
    block_label_background_fill="transparent",
    block_label_background_fill_dark="transparent",
    block_title_text_color="#1B1D22",
    block_title_text_color_dark="#E9EAEE",
    block_title_text_weight="600",
    block_shadow="none",
    input_background_fill="#FFFFFF",
    input_background_fill_dark="#191C24",
    input_border_color="#CFCCC4",
    input_border_color_dark="#3C414C",
    input_border_width="1px",
    input_placeholder_color="#71767F",
    input_placeholder_color_dark="#A3A9B6",
    border_color_primary="#E4E2DC",
    border_color_primary_dark="#2C313C",
    slider_color="#3A45C8",
    slider_color_dark="#8993F1",
    button_primary_background_fill="#3A45C8",
    button_primary_background_fill_hover="#30399F",
    button_primary_background_fill_dark="#4C57D6",
    button_primary_background_fill_hover_dark="#3A45C8",
    button_primary_text_color="#FFFFFF",
    button_secondary_background_fill="#FFFFFF",
    button_secondary_background_fill_hover="#F3F2EE",
    button_secondary_background_fill_dark="#191C24",
    button_secondary_background_fill_hover_dark="#262A35",
    button_secondary_border_color="#CFCCC4",
    button_secondary_border_color_dark="#3C414C",
    button_cancel_background_fill="#FFFFFF",
    button_cancel_background_fill_hover="#F3F2EE",
    button_cancel_background_fill_dark="#191C24",
    button_cancel_background_fill_hover_dark="#262A35",
    button_cancel_text_color="#1B1D22",
    button_cancel_text_color_dark="#E9EAEE",
    button_cancel_border_color="#CFCCC4",
    button_cancel_border_color_dark="#3C414C",
)
