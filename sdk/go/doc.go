// Package capd calls capabilities of other agents through the capd sidecar beside this agent, and serves its own.
//
// A call has one of five ends: a result, or an error of one of four types that say what you may do next:
//
//	translation, err := capd.Call[Request, Translation](ctx, client, "com.acme.translate", request)
//	var refused *capd.Refused        // nothing was executed: fix the cause and call again
//	var failed *capd.Failed          // it ran, and this is its one result: decide by Code
//	var unknown *capd.OutcomeUnknown // nobody knows: look at the effect before you use another key
//	var pending *capd.Pending        // it may still run: ask again with the same key, or use Client.Result
//	switch {
//	case errors.As(err, &refused):
//	case errors.As(err, &failed):
//	case errors.As(err, &unknown):
//	case errors.As(err, &pending):
//	}
//
// Every call has an idempotency key. The package makes one unless you give it, and sends a call again only under its key,
// so it never turns one call into two.
//
// The package finds the sidecar by CAPD_SOCKET, by CAPD_HTTP with CAPD_TOKEN, or at the place where capd puts its socket.
package capd
