// Dapr's sidecar with the one component that the comparison needs: a name resolver that knows every address
// beforehand. It costs a call nothing, as the resolver of Kubernetes does, and nothing is sent to a network.
package main

import (
	"context"
	"fmt"

	"github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/dapr/cmd/daprd/app"
	components "github.com/dapr/dapr/pkg/components/nameresolution"
	"github.com/dapr/kit/logger"
)

// fixed resolves the ids of its configuration, each to the address beside it.
type fixed struct{ addresses map[string]any }

func (f *fixed) Init(_ context.Context, metadata nameresolution.Metadata) error {
	addresses, ok := metadata.Configuration.(map[string]any)
	if !ok {
		return fmt.Errorf("the configuration of the name resolver is %T", metadata.Configuration)
	}
	f.addresses = addresses
	return nil
}

func (f *fixed) ResolveID(_ context.Context, request nameresolution.ResolveRequest) (string, error) {
	address, ok := f.addresses[request.ID].(string)
	if !ok {
		return "", fmt.Errorf("no address is known of %q", request.ID)
	}
	return address, nil
}

func (f *fixed) Close() error { return nil }

func main() {
	make := func(logger.Logger) nameresolution.Resolver { return new(fixed) }
	components.DefaultRegistry.RegisterComponent(make, "fixed")
	app.Run()
}
