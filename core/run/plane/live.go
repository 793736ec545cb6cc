package plane

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// Live requests /livez, as a client in this process, and returns an error unless it is answered with 200. The request takes
// every stage, so that a pipeline that is stuck does not answer.
func (p *Plane) Live(ctx context.Context) error {
	config := p.Client(user.APIServerUser, user.SystemPrivilegedGroup)
	transport, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/livez", nil)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("/livez is %s: %s", answer.Status, text)
	}
	return err
}
