//! Renderers of documents: as lines of text, and as pages.

pub(crate) mod html;
pub(crate) mod plain;
