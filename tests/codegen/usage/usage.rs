//! What a caller writes, and what JSON comes of it.

use capd_client::{CallOptions, Client, ClientError};

use super::pr_reviewer::{self, ReviewPrRequest, ReviewPrRequestSeverity, ReviewPrResponseVerdict};
#[cfg(test)]
use super::shapes;

pub async fn call(client: &Client) -> Result<ReviewPrResponseVerdict, ClientError> {
    let params =
        ReviewPrRequest { pr_url: "https://example.org/1".into(), severity: ReviewPrRequestSeverity::High };
    let options = CallOptions { key: Some("a".into()), ..CallOptions::default() };
    Ok(pr_reviewer::review_pr(client, &params, options).await?.verdict)
}

#[cfg(test)]
fn same<T: serde::Serialize + serde::de::DeserializeOwned>(text: &str) {
    let value: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let again = serde_json::to_value(&value).unwrap();
    assert_eq!(again, serde_json::from_str::<serde_json::Value>(text).unwrap());
}

#[test]
fn json_stays_what_it_is() {
    same::<ReviewPrRequest>(r#"{"prUrl":"https://example.org/1","severity":"low"}"#);
    assert!(serde_json::from_str::<ReviewPrRequest>(r#"{"prUrl":"","severity":"higher"}"#).is_err());
    same::<shapes::TreeRequest>(
        r#"{"label":"a","parent":null,"next":{"label":"b","parent":null},"children":[{"label":"c","parent":null}],
            "by-name":{"x":{"label":"d","parent":{"label":"a","parent":null}}}}"#,
    );
    same::<shapes::EventRequest>(r#"{"kind":"created","name":"a"}"#);
    same::<shapes::EventRequest>(r#"{"kind":"gone","reason":"moved"}"#);
    assert!(serde_json::from_str::<shapes::EventRequest>(r#"{"kind":"created"}"#).is_err());
    for told in [r#""a""#, "1.5", r#"["a"]"#, "null"] {
        same::<shapes::EventResponse>(&format!(r#"{{"told-apart":{told}}}"#));
    }
    same::<shapes::TreeResponse>(r#"["a",["b",[]]]"#);
}
