// Package capd is a stub for compiling generated code: sdk/CONTRACT.md, as declarations.
package capd

import (
	"context"
	"errors"
	"time"
)

type Schema struct {
	SHA256 string
	JSON   string
}

type Client struct{}

type CallOption interface{ option() }

type option struct{}

func (option) option() {}

func Version(versions string) CallOption { return option{} }

func Timeout(limit time.Duration) CallOption { return option{} }

func Key(key string) CallOption { return option{} }

func Thread(thread string) CallOption { return option{} }

func Affinity(text string) CallOption { return option{} }

func BuiltAgainst(input, output *Schema) CallOption { return option{} }

func Call[Req, Res any](ctx context.Context, client *Client, name string, req Req, options ...CallOption) (Res, error) {
	var res Res
	return res, errors.New("a stub calls nothing")
}
