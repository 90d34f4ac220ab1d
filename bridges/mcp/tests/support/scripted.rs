//! A scripted MCP server: this test program, started once more. Its folder says what it lists and how it behaves.
//!
//! It shares no code with the bridge. `tools.json` is what it lists, `era` is `legacy` or `modern`; `effects` takes a line for
//! each run of the tool `append`; `mode` may have it die before or after that.

use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The variable that names the folder.
pub const FOLDER: &str = "SCRIPTED_SERVER";

/// What the bridge starts: the test `name` of this program, which calls [`run`].
pub fn command(name: &str) -> Vec<String> {
    let program = std::env::current_exe().unwrap().display().to_string();
    [&program, name, "--exact", "--ignored", "--quiet", "--nocapture"].map(|word| (*word).to_owned()).to_vec()
}

/// Serves until its input ends.
pub fn run() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default().trim().to_owned();
    let is_modern = read("era") == "modern";
    // Where the server may not write, nobody asks for it.
    let _ = std::fs::write(folder.join("pid"), std::process::id().to_string());
    // What the test harness prints before is noise, as other servers make it, too.
    say_raw("\n");
    eprintln!("\u{1b}[2J scripted server\u{202e}");
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let message: Value = serde_json::from_str(&line).unwrap();
        let (id, method) = (&message["id"], message["method"].as_str().unwrap_or_default());
        let result = match method {
            "server/discover" if is_modern => json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {"listChanged": true}},
            }),
            "initialize" if !is_modern => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "scripted", "version": "0"},
            }),
            "tools/list" => json!({"tools": serde_json::from_str::<Value>(&read("tools.json")).unwrap()}),
            "tools/call" => match call(&folder, &read("mode"), id, &message["params"]) {
                Some(result) => result,
                None => continue,
            },
            "subscriptions/listen" | "notifications/initialized" => continue,
            "notifications/cancelled" => {
                std::fs::write(folder.join("cancelled"), message["params"]["requestId"].to_string()).unwrap();
                continue;
            }
            _ => {
                say(
                    &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}}),
                );
                continue;
            }
        };
        say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }
}

fn call(folder: &Path, mode: &str, id: &Value, params: &Value) -> Option<Value> {
    let arguments = &params["arguments"];
    let said = |text: &str| json!([{"type": "text", "text": text}]);
    Some(match params["name"].as_str().unwrap() {
        "append" => {
            if mode == "die-before" {
                std::process::exit(1);
            }
            let mut file =
                std::fs::File::options().create(true).append(true).open(folder.join("effects")).unwrap();
            writeln!(file, "{}", arguments["key"].as_str().unwrap()).unwrap();
            if mode == "die-after" {
                std::process::exit(1);
            }
            json!({"content": said("appended")})
        }
        "fail" => json!({"isError": true, "content": [
            {"type": "text", "text": "the disk is full"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        ]}),
        "picture" => json!({"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}),
        "sum" => {
            let sum = arguments["a"].as_i64().unwrap() + arguments["b"].as_i64().unwrap();
            json!({"content": said("ignored"), "structuredContent": {"sum": sum}})
        }
        "wrong" => json!({"content": said("x"), "structuredContent": {"sum": "no number"}}),
        "meta" => json!({"content": said(&params["_meta"].to_string())}),
        "announce" => {
            say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
            json!({"content": said("announced")})
        }
        "shout" => {
            let text = std::fs::read_to_string(folder.join("shout")).unwrap();
            eprintln!("{text}");
            let message = json!({"level": "info", "data": text});
            say(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": message}));
            json!({"isError": false, "content": said("shouted")})
        }
        "slow" => {
            let token = &params["_meta"]["progressToken"];
            say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
                "progressToken": token, "progress": 1, "total": 4, "message": "a quarter",
            }}));
            std::fs::write(folder.join("slow"), id.to_string()).unwrap();
            return None;
        }
        "touch" => {
            let tried = std::fs::write(arguments["path"].as_str().unwrap(), "touched");
            json!({"content": said(if tried.is_ok() { "written" } else { "refused" })})
        }
        // Whatever else it lists says its name.
        other => json!({"content": said(&format!("this is {other}"))}),
    })
}

fn say(message: &Value) {
    say_raw(&format!("{message}\n"));
}

fn say_raw(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).unwrap();
}
