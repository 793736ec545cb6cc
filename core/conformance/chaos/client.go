package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
)

// Client sends requests to one replica, or to a balancer, and records the answers. It is safe for concurrent use, but for its fields.
type Client struct {
	History *History
	// Replica returns the name of the process that is asked, one name for each start of it; "" if a balancer chooses.
	Replica func() string
	// URL is that of the API, and Namespace the namespace of the objects.
	URL, Namespace string
	// Transport sends the requests, with the user's credentials.
	Transport http.RoundTripper
	// Timeout bounds a request; its outcome is unknown afterwards.
	Timeout time.Duration
}

// requests numbers the requests of this process.
var requests atomic.Int64

// Do sends a request of a client with a number, waits for its answer, and records both.
func (c *Client) Do(ctx context.Context, number int, r Request) *Operation {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	o := &Operation{Request: r, ID: fmt.Sprintf("chaos-%d", requests.Add(1)), Client: number, Replica: c.Replica()}
	o.Call = c.History.Now()
	err := c.send(ctx, o)
	o.Return = c.History.Now()
	if c.Replica() != o.Replica {
		o.Replica = "" // the process was replaced meanwhile
	}
	if err != nil {
		var op *net.OpError
		o.Code, o.Message = 0, err.Error()
		o.Unknown = !errors.As(err, &op) || op.Op != "dial" // what was not connected was not sent
	}
	if o.Unknown {
		o.Return = Never
	}
	c.History.Add(o)
	return o
}

func (c *Client) path() string { return c.URL + "/api/v1/namespaces/" + c.Namespace + "/configmaps" }

// request returns the HTTP request of an operation.
func (c *Client) request(ctx context.Context, o *Operation) (*http.Request, error) {
	version := ""
	if o.Revision != 0 {
		version = fmt.Sprintf(`,"resourceVersion":"%d"`, o.Revision)
	}
	key := "value"
	if o.Invalid {
		key = "not a key"
	}
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q%s},"data":{%q:%q}}`, o.Name, version, key, o.Value)
	method, path, media := http.MethodGet, c.path()+"/"+url.PathEscape(o.Name), "application/json"
	switch o.Verb {
	case Create:
		method, path = http.MethodPost, c.path()
	case Update:
		method = http.MethodPut
	case Patch:
		method, media = http.MethodPatch, "application/merge-patch+json"
	case Delete:
		method, body = http.MethodDelete, ""
		if o.Revision != 0 {
			body = fmt.Sprintf(`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"%d"}}`, o.Revision)
		}
	case List, ListAny:
		path, body = c.path(), ""
	default:
		body = ""
	}
	if o.Verb == GetAny || o.Verb == ListAny {
		path += "?resourceVersion=0"
	}
	q, err := http.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", media)
	q.Header.Set("Audit-ID", o.ID)
	return q, nil
}

// send sends a request and puts its answer into the operation. The error is that of the connection.
func (c *Client) send(ctx context.Context, o *Operation) error {
	q, err := c.request(ctx, o)
	if err != nil {
		return err
	}
	resp, err := c.Transport.RoundTrip(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	o.Code = resp.StatusCode
	switch {
	case o.Code >= 300:
		o.Message = gjson.GetBytes(body, "message").String()
		// 503 and 507 say that nothing was written; so does 504, unless it says that the outcome is not known.
		o.Unknown = o.Verb.Writes() && (o.Code == 504 && strings.Contains(o.Message, "not known yet") || o.Code == 500 || o.Code == 502)
	case o.Verb == List || o.Verb == ListAny:
		o.At, o.Listed = revisionOf(gjson.ParseBytes(body)), map[string]Object{}
		for _, item := range gjson.GetBytes(body, "items").Array() {
			o.Listed[item.Get("metadata.name").String()] = objectOf(item)
		}
	case o.Verb != Delete:
		o.Object = objectOf(gjson.ParseBytes(body))
	}
	return nil
}

func revisionOf(object gjson.Result) uint64 {
	revision, _ := strconv.ParseUint(object.Get("metadata.resourceVersion").String(), 10, 64) // 0 is the revision of nothing, and found by checks
	return revision
}

func objectOf(object gjson.Result) Object {
	return Object{revisionOf(object), object.Get("data.value").String()}
}
