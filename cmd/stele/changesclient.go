package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/changes"
)

var (
	changesGroupVersion = schema.GroupVersion{Group: changes.Group, Version: changes.Version}
	rawSerializer       = serializer.WithoutConversionCodecFactory{CodecFactory: scheme.Codecs}
)

// changesClient reads log.stele.dev/v1.
type changesClient struct {
	rest *rest.RESTClient
}

func newChangesClient(config *rest.Config) (*changesClient, error) {
	c := rest.CopyConfig(config)
	c.APIPath = "/apis"
	c.GroupVersion = &changesGroupVersion
	c.NegotiatedSerializer = rawSerializer
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, err
	}
	return &changesClient{client}, nil
}

// changesQuery says which changes are meant.
type changesQuery struct {
	namespace   string // "" for all
	fields      fields.Set
	without     []fields.Selector // what the server leaves out
	labels      string
	resources   []schema.GroupResource // none for all
	keep        []func(*changes.Change) bool
	differences bool
	limit       int // 0 for all
}

// only adds what the client chooses by.
func (q *changesQuery) only(keep func(*changes.Change) bool) { q.keep = append(q.keep, keep) }

func (q *changesQuery) keeps(c *logged) bool {
	for _, keep := range q.keep {
		if !keep(&c.Change) {
			return false
		}
	}
	return true
}

func (q *changesQuery) request(client *rest.RESTClient) *rest.Request {
	request := client.Get().NamespaceIfScoped(q.namespace, q.namespace != "").Resource(changes.Plural)
	if !q.differences {
		request = request.Param("difference", "false")
	}
	selected := q.fields
	if len(selected) == 0 {
		selected = fields.Set{"since": "1"} // a list without a selector has the newest changes alone
	}
	if q.labels != "" {
		request = request.Param("labelSelector", q.labels)
	}
	return request.Param("fieldSelector", fields.AndSelectors(append([]fields.Selector{selected.AsSelector()}, q.without...)...).String())
}

// logged is a change, and what the server said of it.
type logged struct {
	changes.Change
	Difference []fieldDifference `json:"difference"`
	raw        json.RawMessage
}

func (c *logged) UnmarshalJSON(text []byte) error {
	type fields logged
	c.raw = append(c.raw[:0], text...)
	return json.Unmarshal(text, (*fields)(c))
}

// list calls each with the changes, page by page, the newest first, and returns the log's
// revision.
func (c *changesClient) list(ctx context.Context, q changesQuery, each func([]*logged) error) (revision string, err error) {
	const pageSize = 500
	token, left := "", q.limit
	for {
		size := pageSize
		if q.limit > 0 && len(q.keep) == 0 {
			size = min(size, left)
		}
		request := q.request(c.rest).Param("limit", fmt.Sprint(size))
		if token != "" {
			request = request.Param("continue", token)
		}
		body, err := request.DoRaw(ctx)
		if err != nil {
			return "", readable(err, body)
		}
		var list struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []*logged `json:"items"`
		}
		if err := json.Unmarshal(body, &list); err != nil {
			return "", err
		}
		if revision == "" {
			revision = list.Metadata.ResourceVersion
		}
		page := list.Items[:0]
		for _, x := range list.Items {
			if q.keeps(x) && (q.limit == 0 || left > 0) {
				page = append(page, x)
				left--
			}
		}
		if err := each(page); err != nil {
			return "", err
		}
		if token = list.Metadata.Continue; token == "" || q.limit > 0 && left <= 0 {
			return revision, nil
		}
	}
}

// follow calls each with the changes behind a revision, as they come, until the context
// ends.
func (c *changesClient) follow(ctx context.Context, q changesQuery, revision string, each func([]*logged) error) error {
	for ctx.Err() == nil {
		request := q.request(c.rest).Param("watch", "true").Param("resourceVersion", revision)
		stream, err := request.Stream(ctx)
		if err != nil {
			return readable(err, nil)
		}
		decoder := json.NewDecoder(stream)
		for {
			var event struct {
				Type   string          `json:"type"`
				Object json.RawMessage `json:"object"`
			}
			if err := decoder.Decode(&event); err != nil {
				break // the server ended the watch: go on from where it was
			}
			if event.Type == "ERROR" {
				stream.Close()
				return readable(errors.New("the watch failed"), event.Object)
			}
			var x logged
			if err := json.Unmarshal(event.Object, &x); err != nil {
				stream.Close()
				return err
			}
			if revision = x.ResourceVersion; event.Type == "BOOKMARK" || !q.keeps(&x) {
				continue
			}
			if err := each([]*logged{&x}); err != nil {
				stream.Close()
				return err
			}
		}
		stream.Close()
		select { // a server that is starting need not be asked at once again
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}
