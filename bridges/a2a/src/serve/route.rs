//! Finds the method that a request of the HTTP+JSON binding asks for: method, path, query and body in; its name and params
//! out. **Source:** A2A 1.0, HTTP+JSON binding.

use a2a::{A2AError, methods};
use hyper::Method;
use serde_json::{Map, Value};

use super::message::invalid;

/// Where JSON-RPC is.
pub(super) const RPC: &str = "/rpc";
/// Where the card is.
pub(super) const CARD: &str = "/.well-known/agent-card.json";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// The method, as JSON-RPC names it.
    pub(super) method: &'static str,
    /// The task that the path names.
    pub(super) id: Option<String>,
    /// Whether the params are the body.
    pub(super) has_body: bool,
}

/// The route of a request; none for a path or a method that there is not.
pub(super) fn route(method: &Method, path: &str) -> Option<Route> {
    let get = method == Method::GET;
    let post = method == Method::POST;
    let plain = |method, has_body| Some(Route { method, id: None, has_body });
    match path {
        "/message:send" if post => return plain(methods::SEND_MESSAGE, true),
        "/message:stream" if post => return plain(methods::SEND_STREAMING_MESSAGE, true),
        "/tasks" if get => return plain(methods::LIST_TASKS, false),
        "/extendedAgentCard" if get => return plain(methods::GET_EXTENDED_AGENT_CARD, false),
        _ => {}
    }
    let rest = path.strip_prefix("/tasks/")?;
    if let Some((id, config)) = rest.split_once("/pushNotificationConfigs") {
        let method = match (method.as_str(), config.is_empty()) {
            ("POST", true) => methods::CREATE_PUSH_CONFIG,
            ("GET", true) => methods::LIST_PUSH_CONFIGS,
            ("GET", false) => methods::GET_PUSH_CONFIG,
            ("DELETE", false) => methods::DELETE_PUSH_CONFIG,
            _ => return None,
        };
        return of_task(method, id, false);
    }
    match rest.rsplit_once(':') {
        Some((id, "cancel")) if post => of_task(methods::CANCEL_TASK, id, true),
        Some((id, "subscribe")) if post || get => of_task(methods::SUBSCRIBE_TO_TASK, id, false),
        None if get => of_task(methods::GET_TASK, rest, false),
        _ => None,
    }
}

fn of_task(method: &'static str, id: &str, has_body: bool) -> Option<Route> {
    let is_id =
        !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    is_id.then(|| Route { method, id: Some(id.to_owned()), has_body })
}

/// The params in a query, each of its field's type.
///
/// **Errors:** -32602 for a value that is not.
pub(super) fn of_query(query: &str) -> Result<Map<String, Value>, A2AError> {
    let mut params = Map::new();
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        let number =
            || value.parse::<i32>().map(Value::from).map_err(|_| invalid(&key, "accepted: a number"));
        let read = match &*key {
            "historyLength" | "pageSize" => number()?,
            "includeArtifacts" => match &*value {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                _ => return Err(invalid(&key, "accepted: true, false")),
            },
            "contextId" | "status" | "pageToken" | "statusTimestampAfter" | "tenant" => Value::from(&*value),
            // Parameters of a later revision, and those that stand for header fields.
            _ => continue,
        };
        params.insert(key.into_owned(), read);
    }
    Ok(params)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_path_of_the_binding_is_a_method() {
        let found = |method: Method, path: &str| route(&method, path).map(|route| (route.method, route.id));
        let id = || Some("a1".to_owned());
        let (get, post) = (|| Method::GET, || Method::POST);
        for (method, path, expected) in [
            (post(), "/message:send", Some(("SendMessage", None))),
            (post(), "/message:stream", Some(("SendStreamingMessage", None))),
            (get(), "/tasks", Some(("ListTasks", None))),
            (get(), "/tasks/a1", Some(("GetTask", id()))),
            (post(), "/tasks/a1:cancel", Some(("CancelTask", id()))),
            (post(), "/tasks/a1:subscribe", Some(("SubscribeToTask", id()))),
            (get(), "/tasks/a1:subscribe", Some(("SubscribeToTask", id()))),
            (get(), "/extendedAgentCard", Some(("GetExtendedAgentCard", None))),
            (post(), "/tasks/a1/pushNotificationConfigs", Some(("CreateTaskPushNotificationConfig", id()))),
            (
                Method::DELETE,
                "/tasks/a1/pushNotificationConfigs/x",
                Some(("DeleteTaskPushNotificationConfig", id())),
            ),
            (get(), "/message:send", None),
            (get(), "/tasks/a1:cancel", None),
            (get(), "/tasks/", None),
            (get(), "/tasks/../x", None),
            (post(), "/tasks/a1", None),
        ] {
            assert_eq!(found(method.clone(), path), expected, "{method} {path}");
        }
    }

    #[test]
    fn a_query_has_numbers_and_truths() {
        let params = of_query("pageSize=7&includeArtifacts=true&status=TASK_STATE_WORKING&x=1").unwrap();
        let expected = json!({"pageSize": 7, "includeArtifacts": true, "status": "TASK_STATE_WORKING"});
        assert_eq!(Value::Object(params), expected);
        assert!(of_query("pageSize=many").is_err());
        assert!(of_query("includeArtifacts=1").is_err());
    }
}
