//! Renderers of documents: plain text, and HTML pages.

pub(crate) mod html;
pub(crate) mod plain;
