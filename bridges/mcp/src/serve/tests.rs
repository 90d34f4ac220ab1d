//! Words for models, and pages.
