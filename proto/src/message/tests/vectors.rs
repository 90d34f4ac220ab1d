//! Bodies in hex, made by another encoder: the good ones in deterministic form, and one that breaks its shape each.

use super::super::Type;

/// A body's type, its bytes in hex, and what they say.
pub(super) type Vector = (Type, &'static str, &'static str);

/// Bodies that are taken, and written back to the same bytes.
pub(super) const GOOD: &[Vector] = &[
    (Type::Ping, "426869", r#"h'6869'"#),
    (Type::Pong, "426869", r#"h'6869'"#),
    (Type::Ack, "f6", r#"null"#),
    (Type::Processing, "a0", r#"{}"#),
    (
        Type::Processing,
        "a3666574615f6d731905dc6b63616e63656c6c61626c65f56b7374617475735f746578746772656164696e67",
        r#"{"status_text": "reading", "eta_ms": 1500, "cancellable": true}"#,
    ),
    (Type::Progress, "a16c70726f67726573735f70637400", r#"{"progress_pct": 0}"#),
    (Type::Progress, "a16c70726f67726573735f7063741864", r#"{"progress_pct": 100}"#),
    (Type::InputRequired, "a16670726f6d70746d5768696368206272616e63683f", r#"{"prompt": "Which branch?"}"#),
    (
        Type::InputRequired,
        "a36670726f6d70746657686963683f676f7074696f6e7382616161626a74696d656f75745f6d7319ea60",
        r#"{"prompt": "Which?", "options": ["a", "b"], "timeout_ms": 60000}"#,
    ),
    (
        Type::Error,
        "a364636f6465190fa2676d657373616765726e6f2073756368206361706162696c6974796863617465676f727966636c \
         69656e74",
        r#"{"code": 4002, "category": "client", "message": "no such capability"}"#,
    ),
    (
        Type::Error,
        "a564636f6465190bbd657265747279f56764657461696c73a16e72657472795f61667465725f6d7318fa676d65737361 \
         676568746f6f206d616e796863617465676f7279687365637572697479",
        r#"{"code": 3005, "category": "security", "message": "too many", "details": {"retry_after_ms": 250…"#,
    ),
    (
        Type::Error,
        "a464636f646519270f657265747279f4676d6573736167656f66726f6d20746865206675747572656863617465676f72 \
         7966736572766572",
        r#"{"code": 9999, "category": "server", "message": "from the future", "retry": false}"#,
    ),
    (
        Type::Request,
        "a2626f70696e65676f74696174656a6361706162696c69747978196f72672e6167656e74726965732e636f64652d7265 \
         76696577",
        r#"{"op": "negotiate", "capability": "org.agentries.code-review"}"#,
    ),
    (
        Type::Request,
        "a5626f70696e65676f74696174656572616e67656a3e3d312e30203c332e306a6361706162696c69747978196f72672e \
         6167656e74726965732e636f64652d726576696577717072656665727265645f76657273696f6e63322e307361636365 \
         707461626c655f76657273696f6e738263312e3563322e30",
        r#"{"op": "negotiate", "capability": "org.agentries.code-review", "preferred_version": "2.0", "acc…"#,
    ),
    (
        Type::Request,
        "a2626f706663616e63656c6674617267657450101112131415161718191a1b1c1d1e1f",
        r#"{"op": "cancel", "target": h'1011…16 bytes'}"#,
    ),
    (Type::Request, "a1626f7066726573756d65", r#"{"op": "resume"}"#),
    (
        Type::Response,
        "a5626f70666163636570746a6361706162696c69747978196f72672e6167656e74726965732e636f64652d7265766965 \
         776a657870697265735f61741b000001977420dc006a73657373696f6e5f696450000102030405060708090a0b0c0d0e \
         0f6e6167726565645f76657273696f6e65322e302e30",
        r#"{"op": "accept", "capability": "org.agentries.code-review", "agreed_version": "2.0.0", "session…"#,
    ),
    (
        Type::Response,
        "a3626f706663616e63656c6573746174656a63616e63656c6c696e676674617267657450101112131415161718191a1b \
         1c1d1e1f",
        r#"{"op": "cancel", "target": h'1011…16 bytes', "state": "cancelling"}"#,
    ),
    (
        Type::Response,
        "a3626f706663616e63656c6573746174656866696e69736865646674617267657450101112131415161718191a1b1c1d \
         1e1f",
        r#"{"op": "cancel", "target": h'1011…16 bytes', "state": "finished"}"#,
    ),
    (
        Type::Response,
        "a3626f706663616e63656c65737461746567756e6b6e6f776e6674617267657450101112131415161718191a1b1c1d1e \
         1f",
        r#"{"op": "cancel", "target": h'1011…16 bytes', "state": "unknown"}"#,
    ),
    (Type::Response, "a1626f7066726573756d65", r#"{"op": "resume"}"#),
    (
        Type::CapQuery,
        "a16666696c746572a16a6361706162696c69747978196f72672e6167656e74726965732e636f64652d726576696577",
        r#"{"filter": {"capability": "org.agentries.code-review"}}"#,
    ),
    (
        Type::CapQuery,
        "a4656c696d697402656f726465726c6f6c646573742d666972737466637572736f72666f70617175656666696c746572 \
         a364747970656f636f64652e7265766965772e6f6c646776657273696f6e6a3e3d322e30203c332e306a636170616269 \
         6c69747978196f72672e6167656e74726965732e636f64652d726576696577",
        r#"{"filter": {"capability": "org.agentries.code-review", "type": "code.review.old", "version": ">…"#,
    ),
    (
        Type::CapQuery,
        "a2656f726465726c6e65776573742d66697273746666696c746572a164747970656f6f72672e6167656e74726965732e \
         2a",
        r#"{"filter": {"type": "org.agentries.*"}, "order": "newest-first"}"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a3626964781f6f72672e6167656e74726965732e636f64652d7265766965773a32 \
         2e312e30646e616d6578196f72672e6167656e74726965732e636f64652d7265766965776776657273696f6e65322e31 \
         2e30",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapDeclare,
        "a36b6e6578745f637572736f7261636c6361706162696c697469657382b4626964781f6f72672e6167656e7472696573 \
         2e636f64652d7265766965773a322e312e30646e616d6578196f72672e6167656e74726965732e636f64652d72657669 \
         6577656e6f746573616e6573696e636563312e30676c696e656167655820abababababababababababababababababab \
         abababababababababababababab6776657273696f6e65322e312e306863617465676f727964636f64656a6964656d70 \
         6f74656e74f56a726174655f6c696d6974a36562757273740266706572696f6462316d6872657175657374730a6a7469 \
         6d656f75745f6d731975306b6465736372697074696f6e68526576696577732e6b7065726d697373696f6e738169636f \
         64652e726561646b7374617469635f686173685820ababababababababababababababababababababababababababab \
         ababababab6c696e7075745f736368656d61a363757269781968747470733a2f2f732e6578616d706c652f696e2e6a73 \
         6f6e64686173685820abababababababababababababababababababababababababababababababab68686173685f61 \
         6c67677368612d3235366c72657472795f706f6c696379a56872657472795f6f6e816774696d656f75746c6d61785f61 \
         7474656d707473036c6d61785f64656c61795f6d7319271070696e697469616c5f64656c61795f6d731903e872626163 \
         6b6f66665f6d756c7469706c696572f941006d6f75747075745f736368656d61a564686173685840cdcdcdcdcdcdcdcd \
         cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd \
         cdcdcdcdcdcdcdcd68686173685f616c67677368612d3531326962756e646c655f696461626a6d656469615f74797065 \
         776170706c69636174696f6e2f736368656d612b6a736f6e6c61727469666163745f6b6579616b70737570706f727465 \
         645f72616e676573816e3e3d322e302e30203c332e302e3071646570726563617465645f72616e67657381663c322e31 \
         2e30726d696e5f736368656d615f76657273696f6e65322e302e3073646570726563617465645f76657273696f6e7381 \
         65322e302e35a361788201a16179f662696469612e622e633a312e306c696e7075745f736368656d6178196874747073 \
         3a2f2f732e6578616d706c652f696e2e6a736f6e746361706162696c69746965735f76657273696f6e63312e30",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a262696469612e622e633a312e306c696e7075745f736368656d61a36468617368 \
         5820abababababababababababababababababababababababababababababababab66696e6c696e65a1647479706566 \
         6f626a65637468686173685f616c67677368612d323536",
        r#"{"capabilities": [{"id": "a.b.c:1.0", "input_schema": {"inline": {"type": "object"}, "hash_alg"…"#,
    ),
    (
        Type::CapInvoke,
        "a2626964781d6f72672e6167656e74726965732e636f64652d7265766965773a322e3166706172616d73a164636f6465 \
         6c666e206d61696e2829207b7d",
        r#"{"id": "org.agentries.code-review:2.1", "params": {"code": "fn main() {}"}}"#,
    ),
    (
        Type::CapInvoke,
        "a366706172616d73f66776657273696f6e65322e312e306a6361706162696c69747978196f72672e6167656e74726965 \
         732e636f64652d726576696577",
        r#"{"capability": "org.agentries.code-review", "version": "2.1.0", "params": null}"#,
    ),
    (
        Type::CapInvoke,
        "a4647479706578196f72672e6167656e74726965732e636f64652d72657669657766706172616d7380696e65676f7469 \
         617465a36572616e6765653e3d312e306970726566657272656463322e316a61636365707461626c658263322e306331 \
         2e356a74696d656f75745f6d73191388",
        r#"{"type": "org.agentries.code-review", "negotiate": {"preferred": "2.1", "acceptable": ["2.0", "…"#,
    ),
    (
        Type::CapInvoke,
        "a7626964781d6f72672e6167656e74726965732e636f64652d7265766965773a322e3164747970656769676e6f726564 \
         66706172616d73016773657373696f6ea26a73657373696f6e5f696450000102030405060708090a0b0c0d0e0f6d7365 \
         7373696f6e5f73636f7065f56776657273696f6e65322e312e306a6361706162696c69747978196f72672e6167656e74 \
         726965732e636f64652d7265766965776a64656c65676174696f6ea165636861696e80",
        r#"{"id": "org.agentries.code-review:2.1", "capability": "org.agentries.code-review", "type": "ign…"#,
    ),
    (
        Type::CapInvoke,
        "a366706172616d73a06773657373696f6ea16a73657373696f6e5f696450000102030405060708090a0b0c0d0e0f6a63 \
         61706162696c69747978196f72672e6167656e74726965732e636f64652d726576696577",
        r#"{"capability": "org.agentries.code-review", "params": {}, "session": {"session_id": h'0001…16 b…"#,
    ),
    (
        Type::CapResult,
        "a266726573756c74a16669737375657380667374617475736773756363657373",
        r#"{"status": "success", "result": {"issues": []}}"#,
    ),
    (
        Type::CapResult,
        "a566726573756c74f66673746174757367737563636573736773657373696f6ea16a73657373696f6e5f696450000102 \
         030405060708090a0b0c0d0e0f6d636f73745f657374696d617465a263757364f9340066746f6b656e731904b0716578 \
         65637574696f6e5f74696d655f6d730c",
        r#"{"status": "success", "result": null, "session": {"session_id": h'0001…16 bytes'}, "execution_t…"#,
    ),
    (
        Type::CapResult,
        "a2656572726f72a464636f646519138b646e616d656754494d454f55546764657461696c73a1626d7319ea60676d6573 \
         736167656f72616e206f7574206f662074696d6566737461747573656572726f72",
        r#"{"status": "error", "error": {"code": 5003, "name": "TIMEOUT", "message": "ran out of time", "d…"#,
    ),
    (
        Type::CapResult,
        "a2656572726f726869742062726f6b6566737461747573656572726f72",
        r#"{"status": "error", "error": "it broke"}"#,
    ),
    (
        Type::CapResult,
        "a2656572726f72a166726561736f6e0766737461747573656572726f72",
        r#"{"status": "error", "error": {"reason": 7}}"#,
    ),
    (Type::CapResult, "a2656572726f72f666737461747573656572726f72", r#"{"status": "error", "error": null}"#),
    (
        Type::DocRequest,
        "a164686173685820abababababababababababababababababababababababababababababababab",
        r#"{"hash": h'abab…32 bytes'}"#,
    ),
    (
        Type::DocSend,
        "a56464617461427b7d64686173685820abababababababababababababababababababababababababababababababab \
         6473697a65026866696c656e616d6567696e2e6a736f6e6c636f6e74656e745f74797065776170706c69636174696f6e \
         2f736368656d612b6a736f6e",
        r#"{"content_type": "application/schema+json", "filename": "in.json", "size": 2, "hash": h'abab…32…"#,
    ),
    (Type::Hello, "a16876657273696f6e738163312e30", r#"{"versions": ["1.0"]}"#),
    (
        Type::Hello,
        "a36876657273696f6e738263322e3063312e306a6167656e745f696e666fa2646e616d6563616e6e6e696d706c656d65 \
         6e746174696f6e64636170646a657874656e73696f6e73816c6368616e6e656c2d61757468",
        r#"{"versions": ["2.0", "1.0"], "extensions": ["channel-auth"], "agent_info": {"name": "ann", "imp…"#,
    ),
    (Type::HelloAck, "a16873656c656374656463312e30", r#"{"selected": "1.0"}"#),
    (Type::HelloReject, "a0", r#"{}"#),
    (Type::HelloReject, "a166726561736f6e67746f6f206f6c64", r#"{"reason": "too old"}"#),
];

/// Bodies that are a 1001.
pub(super) const MISSHAPEN: &[Vector] = &[
    (Type::Processing, "80", r#"[]"#),
    (Type::Processing, "a1666574615f6d7320", r#"{"eta_ms": -1}"#),
    (Type::Processing, "a16b63616e63656c6c61626c6501", r#"{"cancellable": 1}"#),
    (Type::Progress, "a0", r#"{}"#),
    (Type::Progress, "a16c70726f67726573735f7063741865", r#"{"progress_pct": 101}"#),
    (Type::Progress, "a16c70726f67726573735f706374f95240", r#"{"progress_pct": 50.0}"#),
    (Type::InputRequired, "a0", r#"{}"#),
    (Type::InputRequired, "a16670726f6d707401", r#"{"prompt": 1}"#),
    (Type::Error, "a264636f6465190fa2676d657373616765616d", r#"{"code": 4002, "message": "m"}"#),
    (
        Type::Error,
        "a364636f6465190fa2676d657373616765616d6863617465676f7279656f74686572",
        r#"{"code": 4002, "category": "other", "message": "m"}"#,
    ),
    (
        Type::Error,
        "a364636f64656434303032676d657373616765616d6863617465676f727966636c69656e74",
        r#"{"code": "4002", "category": "client", "message": "m"}"#,
    ),
    (
        Type::Error,
        "a364636f646520676d657373616765616d6863617465676f727966636c69656e74",
        r#"{"code": -1, "category": "client", "message": "m"}"#,
    ),
    (Type::Request, "a0", r#"{}"#),
    (Type::Request, "a1626f70696e65676f7469617465", r#"{"op": "negotiate"}"#),
    (Type::Request, "a1626f706663616e63656c", r#"{"op": "cancel"}"#),
    (
        Type::Request,
        "a2626f706663616e63656c667461726765744f1112131415161718191a1b1c1d1e1f",
        r#"{"op": "cancel", "target": h'1112…15 bytes'}"#,
    ),
    (Type::Request, "a1626f7066616363657074", r#"{"op": "accept"}"#),
    (Type::Request, "a1626f7001", r#"{"op": 1}"#),
    (
        Type::Response,
        "a4626f70666163636570746a6361706162696c69747978196f72672e6167656e74726965732e636f64652d7265766965 \
         776a73657373696f6e5f696450000102030405060708090a0b0c0d0e0f6e6167726565645f76657273696f6e65322e30 \
         2e30",
        r#"{"op": "accept", "capability": "org.agentries.code-review", "agreed_version": "2.0.0", "session…"#,
    ),
    (
        Type::Response,
        "a5626f70666163636570746a6361706162696c69747978196f72672e6167656e74726965732e636f64652d7265766965 \
         776a657870697265735f6174016a73657373696f6e5f696451000102030405060708090a0b0c0d0e0f786e6167726565 \
         645f76657273696f6e65322e302e30",
        r#"{"op": "accept", "capability": "org.agentries.code-review", "agreed_version": "2.0.0", "session…"#,
    ),
    (
        Type::Response,
        "a2626f706663616e63656c6674617267657450101112131415161718191a1b1c1d1e1f",
        r#"{"op": "cancel", "target": h'1011…16 bytes'}"#,
    ),
    (
        Type::Response,
        "a3626f706663616e63656c657374617465646c6f73746674617267657450101112131415161718191a1b1c1d1e1f",
        r#"{"op": "cancel", "target": h'1011…16 bytes', "state": "lost"}"#,
    ),
    (Type::Response, "a1626f70696e65676f7469617465", r#"{"op": "negotiate"}"#),
    (Type::CapQuery, "a0", r#"{}"#),
    (Type::CapQuery, "a16666696c74657280", r#"{"filter": []}"#),
    (Type::CapQuery, "a16666696c746572a16a6361706162696c69747901", r#"{"filter": {"capability": 1}}"#),
    (
        Type::CapQuery,
        "a2656f726465726672616e646f6d6666696c746572a16a6361706162696c69747978196f72672e6167656e7472696573 \
         2e636f64652d726576696577",
        r#"{"filter": {"capability": "org.agentries.code-review"}, "order": "random"}"#,
    ),
    (
        Type::CapQuery,
        "a2656c696d6974206666696c746572a16a6361706162696c69747978196f72672e6167656e74726965732e636f64652d \
         726576696577",
        r#"{"filter": {"capability": "org.agentries.code-review"}, "limit": -1}"#,
    ),
    (Type::CapDeclare, "a16c6361706162696c697469657380", r#"{"capabilities": []}"#),
    (Type::CapDeclare, "a0", r#"{}"#),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a1646e616d6578196f72672e6167656e74726965732e636f64652d726576696577",
        r#"{"capabilities": [{"name": "org.agentries.code-review"}]}"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a4626964781f6f72672e6167656e74726965732e636f64652d7265766965773a32 \
         2e312e30646e616d6578196f72672e6167656e74726965732e636f64652d7265766965776776657273696f6e65322e31 \
         2e306a6964656d706f74656e7401",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a4626964781f6f72672e6167656e74726965732e636f64652d7265766965773a32 \
         2e312e30646e616d6578196f72672e6167656e74726965732e636f64652d7265766965776776657273696f6e65322e31 \
         2e306c696e7075745f736368656d61a363757269617564686173685840cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd \
         cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd686861 \
         73685f616c67677368612d323536",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a4626964781f6f72672e6167656e74726965732e636f64652d7265766965773a32 \
         2e312e30646e616d6578196f72672e6167656e74726965732e636f64652d7265766965776776657273696f6e65322e31 \
         2e306c696e7075745f736368656d61a363757269617564686173685820ababababababababababababababababababab \
         ababababababababababababab68686173685f616c67677368612d353132",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a4626964781f6f72672e6167656e74726965732e636f64652d7265766965773a32 \
         2e312e30646e616d6578196f72672e6167656e74726965732e636f64652d7265766965776776657273696f6e65322e31 \
         2e306c696e7075745f736368656d61a363757269617564686173685820ababababababababababababababababababab \
         ababababababababababababab68686173685f616c67636d6435",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a4626964781f6f72672e6167656e74726965732e636f64652d7265766965773a32 \
         2e312e30646e616d6578196f72672e6167656e74726965732e636f64652d7265766965776776657273696f6e65322e31 \
         2e306c696e7075745f736368656d61a264686173685820ababababababababababababababababababababababababab \
         ababababababab68686173685f616c67677368612d323536",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a4626964781f6f72672e6167656e74726965732e636f64652d7265766965773a32 \
         2e312e30646e616d6578196f72672e6167656e74726965732e636f64652d7265766965776776657273696f6e65322e31 \
         2e306c696e7075745f736368656d61a463757269617564686173685820ababababababababababababababababababab \
         ababababababababababababab68686173685f616c67677368612d3235366962756e646c655f69646162",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a4626964781f6f72672e6167656e74726965732e636f64652d7265766965773a32 \
         2e312e30646e616d6578196f72672e6167656e74726965732e636f64652d7265766965776776657273696f6e65322e31 \
         2e306c696e7075745f736368656d61a464686173685820ababababababababababababababababababababababababab \
         ababababababab66696e6c696e650168686173685f616c67677368612d3235366c61727469666163745f6b65796162",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a4626964781f6f72672e6167656e74726965732e636f64652d7265766965773a32 \
         2e312e30646e616d6578196f72672e6167656e74726965732e636f64652d7265766965776776657273696f6e65322e31 \
         2e306b7374617469635f686173685840cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd \
         cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a4626964781f6f72672e6167656e74726965732e636f64652d7265766965773a32 \
         2e312e30646e616d6578196f72672e6167656e74726965732e636f64652d7265766965776776657273696f6e65322e31 \
         2e306a726174655f6c696d6974a168726571756573747301",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a4626964781f6f72672e6167656e74726965732e636f64652d7265766965773a32 \
         2e312e30646e616d6578196f72672e6167656e74726965732e636f64652d7265766965776776657273696f6e65322e31 \
         2e3070737570706f727465645f72616e676573653e3d312e30",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapDeclare,
        "a16c6361706162696c697469657381a4626964781f6f72672e6167656e74726965732e636f64652d7265766965773a32 \
         2e312e30646e616d6578196f72672e6167656e74726965732e636f64652d7265766965776776657273696f6e65322e31 \
         2e306c72657472795f706f6c69637903",
        r#"{"capabilities": [{"id": "org.agentries.code-review:2.1.0", "name": "org.agentries.code-review"…"#,
    ),
    (
        Type::CapInvoke,
        "a1626964781d6f72672e6167656e74726965732e636f64652d7265766965773a322e31",
        r#"{"id": "org.agentries.code-review:2.1"}"#,
    ),
    (Type::CapInvoke, "a26269640166706172616d73a0", r#"{"id": 1, "params": {}}"#),
    (
        Type::CapInvoke,
        "a3626964617866706172616d73a06773657373696f6ea0",
        r#"{"id": "x", "params": {}, "session": {}}"#,
    ),
    (
        Type::CapInvoke,
        "a3626964617866706172616d73a06773657373696f6ea16a73657373696f6e5f69644f0102030405060708090a0b0c0d \
         0e0f",
        r#"{"id": "x", "params": {}, "session": {"session_id": h'0102…15 bytes'}}"#,
    ),
    (
        Type::CapInvoke,
        "a3626964617866706172616d73a06773657373696f6ea26a73657373696f6e5f696450000102030405060708090a0b0c \
         0d0e0f6d73657373696f6e5f73636f7065f4",
        r#"{"id": "x", "params": {}, "session": {"session_id": h'0001…16 bytes', "session_scope": false}}"#,
    ),
    (
        Type::CapInvoke,
        "a3626964617866706172616d73a06773657373696f6e50000102030405060708090a0b0c0d0e0f",
        r#"{"id": "x", "params": {}, "session": h'0001…16 bytes'}"#,
    ),
    (
        Type::CapInvoke,
        "a3626964617866706172616d73a0696e65676f7469617465a16a61636365707461626c6563312e30",
        r#"{"id": "x", "params": {}, "negotiate": {"acceptable": "1.0"}}"#,
    ),
    (
        Type::CapInvoke,
        "a3626964617866706172616d73a06a74696d656f75745f6d73f93e00",
        r#"{"id": "x", "params": {}, "timeout_ms": 1.5}"#,
    ),
    (Type::CapInvoke, "a30102626964617866706172616d73a0", r#"{"id": "x", "params": {}, 1: 2}"#),
    (Type::CapResult, "a1667374617475736773756363657373", r#"{"status": "success"}"#),
    (Type::CapResult, "a166737461747573656572726f72", r#"{"status": "error"}"#),
    (Type::CapResult, "a266726573756c74016673746174757364646f6e65", r#"{"status": "done", "result": 1}"#),
    (Type::CapResult, "a166726573756c7401", r#"{"result": 1}"#),
    (
        Type::CapResult,
        "a366726573756c74016673746174757367737563636573736d636f73745f657374696d617465a1637573646131",
        r#"{"status": "success", "result": 1, "cost_estimate": {"usd": "1"}}"#,
    ),
    (
        Type::CapResult,
        "a366726573756c74016673746174757367737563636573736773657373696f6ea0",
        r#"{"status": "success", "result": 1, "session": {}}"#,
    ),
    (Type::DocRequest, "a0", r#"{}"#),
    (Type::DocRequest, "a164686173686474657874", r#"{"hash": "text"}"#),
    (
        Type::DocSend,
        "a464686173685820abababababababababababababababababababababababababababababababab6473697a65026866 \
         696c656e616d6561666c636f6e74656e745f747970656163",
        r#"{"content_type": "c", "filename": "f", "size": 2, "hash": h'abab…32 bytes'}"#,
    ),
    (Type::Hello, "a0", r#"{}"#),
    (Type::Hello, "a16876657273696f6e7380", r#"{"versions": []}"#),
    (Type::Hello, "a16876657273696f6e738101", r#"{"versions": [1]}"#),
    (
        Type::Hello,
        "a26876657273696f6e738163312e306a6167656e745f696e666fa0",
        r#"{"versions": ["1.0"], "agent_info": {}}"#,
    ),
    (Type::HelloAck, "a0", r#"{}"#),
    (Type::HelloAck, "a16873656c656374656401", r#"{"selected": 1}"#),
    (Type::HelloReject, "a166726561736f6ef6", r#"{"reason": null}"#),
];
