package client

import (
	"context"

	"k8s.io/client-go/rest"
	"stele.dev/stele/core/resources/replicas"
)

// Replicas returns the servers of the log.
func Replicas(ctx context.Context, config *rest.Config) ([]replicas.ReplicaObject, error) {
	c, err := newRESTClient(config, replicas.Group, replicas.Version)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []replicas.ReplicaObject `json:"items"`
	}
	err = get(ctx, c.Get().Resource(replicas.Plural), &list)
	return list.Items, err
}

// Ready returns nil if the server that answers is ready, or else what it says.
func Ready(ctx context.Context, config *rest.Config) error {
	c, err := newRESTClient(config, replicas.Group, replicas.Version)
	if err != nil {
		return err
	}
	text, err := c.Get().AbsPath("/readyz").DoRaw(ctx)
	return Readable(err, text)
}
