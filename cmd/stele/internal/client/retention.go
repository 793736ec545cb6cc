package client

import (
	"context"
	"encoding/json"

	"k8s.io/client-go/rest"
	"stele.dev/stele/core/keep/retention"
)

// Retention asks the server what it keeps of the past. It returns the answer decoded and as JSON.
func Retention(ctx context.Context, config *rest.Config) (*retention.Report, json.RawMessage, error) {
	c, err := newRESTClient(config, "", "v1")
	if err != nil {
		return nil, nil, err
	}
	text, err := c.Get().AbsPath(retention.Path).DoRaw(ctx)
	if err != nil {
		return nil, nil, Readable(err, text)
	}
	report := &retention.Report{}
	return report, text, json.Unmarshal(text, report)
}
