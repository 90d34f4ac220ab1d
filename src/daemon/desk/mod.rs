//! Questions in; what the sidecar knows, and its agent may read, out.

mod audit_pages;
mod policy;
