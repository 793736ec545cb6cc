package host

import (
	"context"
	"fmt"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"stele.dev/stele/plugins/authorizerpb"
)

// Process is a program that runs as plugins do, and has not been configured. It is for tools, which ask it
// directly: nothing is limited, cached, or bounded but by the contexts of the calls.
type Process struct {
	authorizerpb.AuthorizerClient
	instance *instance
}

// Close ends the process, and leaves nothing of it.
func (p *Process) Close() { p.instance.end() }

// Open starts the program of a spec by itself. Errors are as those of Check. It has to be closed.
func (h *Host) Open(ctx context.Context, spec Spec) (_ *Process, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.options.StartTimeout)
	defer cancel()
	p := &plugin{host: h, spec: spec, limit: &limiter{}, log: h.options.Logger.With("plugin", spec.Name)}
	i := &instance{lost: make(chan struct{})}
	defer func() {
		if err != nil {
			i.end()
			err = fmt.Errorf("plugin %s: %w", spec.Name, err)
		}
	}()
	folder, err := h.newFolder()
	if err != nil {
		return nil, err
	}
	i.record = h.newRecord(folder)
	if err := i.record.write(); err != nil {
		return nil, err
	}
	path, err := copyProgram(h.options.Dir, &p.spec, folder)
	if err != nil {
		return nil, err
	}
	i.process = p.newProcess(path, i.record)
	defer context.AfterFunc(ctx, i.process.kill)()
	address, config, err := i.greet(folder, p.output("go-plugin", -4), h.options.StartTimeout)
	if err != nil {
		return nil, i.why(ctx, err)
	}
	if err := i.dial(address, config); err != nil {
		return nil, err
	}
	if _, err := i.client.Describe(ctx, &authorizerpb.DescribeRequest{}, grpc.MaxCallRecvMsgSize(describeBytes), grpc.WaitForReady(true)); err != nil {
		return nil, i.why(ctx, fmt.Errorf("it doesn't describe itself: %s", message(err)))
	}
	if err := i.healthy(ctx); err != nil {
		return nil, i.why(ctx, fmt.Errorf("it has no health: let it serve grpc.health.v1 for the service %q: %w", goplugin.GRPCServiceName, err))
	}
	return &Process{AuthorizerClient: i.client, instance: i}, nil
}
