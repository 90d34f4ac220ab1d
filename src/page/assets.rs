//! Holds the files of the page, which are part of the program: a path in; its bytes and type out.

/// One file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asset {
    /// Where it is served.
    pub(super) path: &'static str,
    pub(super) kind: &'static str,
    pub(super) bytes: &'static [u8],
}

macro_rules! assets {
    ($($path:literal $file:literal $kind:expr;)*) => {
        /// Every file of the page.
        pub(super) const ASSETS: &[Asset] = &[$(Asset {
            path: $path,
            kind: $kind,
            bytes: include_bytes!(concat!("assets/", $file)),
        }),*];
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

assets! {
    "/" "index.html" HTML;
    "/style.css" "style.css" CSS;
    "/icon.svg" "icon.svg" SVG;
    "/app.js" "app.js" JS;
    "/dom.js" "dom.js" JS;
    "/link.js" "link.js" JS;
    "/form.js" "form.js" JS;
    "/list.js" "list.js" JS;
    "/chart.js" "chart.js" JS;
    "/names.js" "names.js" JS;
    "/text.js" "text.js" JS;
    "/views/overview.js" "views/overview.js" JS;
    "/views/calls.js" "views/calls.js" JS;
    "/views/call.js" "views/call.js" JS;
    "/views/timeline.js" "views/timeline.js" JS;
    "/views/capabilities.js" "views/capabilities.js" JS;
    "/views/try.js" "views/try.js" JS;
    "/views/contracts.js" "views/contracts.js" JS;
    "/views/peers.js" "views/peers.js" JS;
    "/views/policy.js" "views/policy.js" JS;
    "/views/audit.js" "views/audit.js" JS;
    "/views/configuration.js" "views/configuration.js" JS;
}

/// The file at a path.
pub(super) fn find(path: &str) -> Option<Asset> {
    ASSETS.iter().copied().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(asset: &Asset) -> &'static str {
        std::str::from_utf8(asset.bytes).unwrap()
    }

    #[test]
    fn every_file_that_is_there_is_served_and_every_import_leads_to_one() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page/assets");
        let mut files = Vec::new();
        for folder in [root.clone(), root.join("views")] {
            let found = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
            files.extend(found.filter(|path| path.is_file()));
        }
        assert_eq!(files.len(), ASSETS.len());
        for asset in ASSETS.iter().filter(|asset| asset.kind == JS) {
            let folder = std::path::Path::new(asset.path).parent().unwrap();
            for line in text(asset).lines().filter(|line| line.starts_with("import ")) {
                let named = line.split('"').nth(1).unwrap();
                let target = match named.strip_prefix("../") {
                    Some(up) => format!("/{up}"),
                    None => folder.join(named.trim_start_matches("./")).display().to_string(),
                };
                assert!(find(&target).is_some(), "{}: {line}", asset.path);
            }
        }
    }

    #[test]
    fn nothing_in_the_page_needs_an_unsafe_policy_or_another_host() {
        for asset in ASSETS {
            let text = text(asset);
            for banned in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "javascript:",
                "style=\"",
                "onclick=",
            ] {
                assert!(!text.contains(banned), "{} has {banned}", asset.path);
            }
            let foreign = text
                .match_indices("://")
                .map(|(at, _)| &text[at.saturating_sub(5)..(at + 20).min(text.len())]);
            for url in foreign {
                let is_own = ["www.w3.org", "127.0.0.1", "localhost"].iter().any(|host| url.contains(host));
                assert!(is_own, "{}: {url}", asset.path);
            }
        }
    }
}
