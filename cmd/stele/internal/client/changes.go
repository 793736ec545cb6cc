package client

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/resources/changes"
)

// recent returns the sorted values of a property of the newest changes, and the number of these changes.
func (c *Changes) recent(ctx context.Context, of func(*changes.Change) string) (values []string, looked int, err error) {
	newest, err := c.Some(ctx, ChangesQuery{Limit: 500})
	if err != nil {
		return nil, 0, err
	}
	found := map[string]bool{}
	for _, x := range newest {
		if value := of(x); value != "" {
			found[value] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), len(newest), nil
}

// Changes is a client of log.stele.dev/v1, the API of changes.
type Changes struct {
	rest *rest.RESTClient
}

// NewChanges returns a client of the API of changes.
func NewChanges(config *rest.Config) (*Changes, error) {
	c, err := newRESTClient(config, changes.Group, changes.Version)
	return &Changes{c}, err
}

// ChangesQuery selects changes.
type ChangesQuery struct {
	Namespace   string            // "" for all
	Fields      fields.Set        // the field selector
	Without     []fields.Selector // changes that the server leaves out
	labels      string
	Resources   []schema.GroupResource // none for all
	keep        []func(*changes.Change) bool
	Differences bool
	Limit       int // 0 for all
}

// addFilter adds a filter that this program applies.
func (q *ChangesQuery) addFilter(keep func(*changes.Change) bool) { q.keep = append(q.keep, keep) }

// keeps reports whether a change passes the filters that this program applies.
func (q *ChangesQuery) keeps(c *Change) bool {
	for _, keep := range q.keep {
		if !keep(&c.Change) {
			return false
		}
	}
	return true
}

// request returns the request for the selected changes.
func (q *ChangesQuery) request(client *rest.RESTClient) *rest.Request {
	request := client.Get().NamespaceIfScoped(q.Namespace, q.Namespace != "").Resource(changes.Plural)
	if !q.Differences {
		request = request.Param("difference", "false")
	}
	selected := q.Fields
	if len(selected) == 0 {
		selected = fields.Set{"since": "1"} // without a selector, the list has only the newest changes
	}
	if q.labels != "" {
		request = request.Param("labelSelector", q.labels)
	}
	return request.Param("fieldSelector", fields.AndSelectors(append([]fields.Selector{selected.AsSelector()}, q.Without...)...).String())
}

// List calls each with every page of changes, the newest first, and returns the revision of the list.
func (c *Changes) List(ctx context.Context, q ChangesQuery, each func([]*Change) error) (revision string, err error) {
	keep := q.keeps
	if len(q.keep) == 0 {
		keep = nil
	}
	return list(ctx, func() *rest.Request { return q.request(c.rest) }, q.Limit, keep, each)
}

// list calls each with every page of a list, and returns the resource version of the list. It ends after limit items, unless limit is
// 0. Items of which keep returns false are left out, if it is not nil.
func list[T any](ctx context.Context, request func() *rest.Request, limit int, keep func(*T) bool, each func([]*T) error) (version string, err error) {
	const pageSize = 500
	token, left := "", limit
	for {
		size := pageSize
		if limit > 0 && keep == nil {
			size = min(size, left)
		}
		page := request().Param("limit", fmt.Sprint(size))
		if token != "" {
			page = page.Param("continue", token)
		}
		var found struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []*T            `json:"items"`
		}
		if err := get(ctx, page, &found); err != nil {
			return "", err
		}
		if version == "" {
			version = found.Metadata.ResourceVersion
		}
		kept := found.Items[:0]
		for _, x := range found.Items {
			if (keep == nil || keep(x)) && (limit == 0 || left > 0) {
				kept = append(kept, x)
				left--
			}
		}
		if err := each(kept); err != nil {
			return "", err
		}
		if token = found.Metadata.Continue; token == "" || limit > 0 && left <= 0 {
			return version, nil
		}
	}
}

// Follow calls each with new changes after a revision until the context ends. It reconnects when the server ends the watch, and while it does
// not answer, which it says once. No change is left out or repeated.
func (c *Changes) Follow(ctx context.Context, q ChangesQuery, revision string, say func(text string), each func([]*Change) error) error {
	o := &outage{server: c.host(), say: say}
	for ctx.Err() == nil {
		err := watch(ctx, q.request(c.rest), &revision, o.noteAnswer, func(text json.RawMessage) error {
			x := new(Change)
			if err := json.Unmarshal(text, x); err != nil || !q.keeps(x) {
				return err
			}
			return each([]*Change{x})
		})
		if err := o.wait(ctx, err); err != nil {
			return err
		}
	}
	return nil
}

// host names the server for messages.
func (c *Changes) host() string { return "the server " + c.rest.Get().URL().Host }

// Get returns the change that has a revision.
func (c *Changes) Get(ctx context.Context, namespace string, revision uint64) (*changes.Change, error) {
	change := new(changes.Change)
	return change, get(ctx, c.rest.Get().NamespaceIfScoped(namespace, namespace != "").Resource(changes.Plural).Name(strconv.FormatUint(revision, 10)), change)
}

// Some returns the selected changes, the newest first.
func (c *Changes) Some(ctx context.Context, q ChangesQuery) ([]*changes.Change, error) {
	var all []*changes.Change
	_, err := c.List(ctx, q, func(page []*Change) error {
		for _, x := range page {
			all = append(all, &x.Change)
		}
		return nil
	})
	return all, err
}
