package host

import (
	"context"
	"fmt"

	"stele.dev/stele/plugins/admissionpb"
	"stele.dev/stele/plugins/authorizerpb"
)

// Process is a plugin's process that has not been configured. It is for tools, which call it directly: there are no
// limits, caches or timeouts other than the contexts of the calls.
type Process struct {
	// Authorizer and Admission are the services of the program. Calls of one that it does not have fail.
	Authorizer authorizerpb.AuthorizerClient
	Admission  admissionpb.AdmissionClient
	// Description is what the program says of itself.
	Description Description

	instance *instance
}

// Close ends the process and removes its files.
func (p *Process) Close() { p.instance.end() }

// Open starts a process of a spec's program. Errors are like those of Check. The caller must close the process.
func (h *Host) Open(ctx context.Context, spec Spec) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, h.options.StartTimeout)
	defer cancel()
	p := &plugin{host: h, spec: spec, limit: &limiter{}, log: h.options.Logger.With("plugin", spec.Name)}
	i, err := p.open(ctx, func(*instance) error { return nil })
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", spec.Name, err)
	}
	return &Process{Authorizer: i.authorizer, Admission: i.admission, Description: Description{i.is, i.has}, instance: i}, nil
}

// Describe starts the program of a spec, and returns its description of itself. The error may be that it lacks a service
// that the policy uses; then there is a description, too.
func (h *Host) Describe(ctx context.Context, spec Spec) (*Description, error) {
	p, err := h.Open(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if err := p.Description.lacking(spec.Uses); err != nil {
		return &p.Description, fmt.Errorf("plugin %s: %w", spec.Name, err)
	}
	return &p.Description, nil
}
