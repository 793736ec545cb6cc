package client

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/keep/verification"
)

// Verify asks the server to verify the projections with these names, or all, and waits for the results.
func Verify(ctx context.Context, config *rest.Config, names ...string) ([]verification.Result, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion, c.NegotiatedSerializer, c.Timeout = &schema.GroupVersion{}, rawSerializer, 0
	client, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return nil, err
	}
	request := client.Get().AbsPath(verification.Path)
	for _, name := range names {
		request = request.Param("projection", name)
	}
	var answer verification.Answer
	err = get(ctx, request, &answer)
	return answer.Results, err
}
