package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/core/keep/logapi"
	"stele.dev/stele/eventlog/backup"
)

// server is the source of a log on a server.
type server struct {
	client *http.Client
	url    *url.URL
}

var _ backup.Source = (*server)(nil)

// NewServer returns the source of the log of a server.
func NewServer(config *rest.Config) (backup.Source, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &server{client, base}, nil
}

// State implements [backup.Source].
func (s *server) State(ctx context.Context) (*backup.State, error) {
	body, err := s.get(ctx, logapi.StatePath, nil, 0)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	state := &backup.State{}
	if err := json.NewDecoder(body).Decode(state); err != nil {
		return nil, fmt.Errorf("the answer of %s to %s cannot be read: %w", s.url.Host, logapi.StatePath, err)
	}
	return state, nil
}

// Batches implements [backup.Source].
func (s *server) Batches(ctx context.Context, after, until uint64) (io.ReadCloser, error) {
	return s.get(ctx, logapi.BatchesPath, url.Values{"after": {strconv.FormatUint(after, 10)}, "until": {strconv.FormatUint(until, 10)}}, 0)
}

// File implements [backup.Source].
func (s *server) File(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	return s.get(ctx, logapi.Prefix+name, nil, offset)
}

// get reads a path, from an offset on.
func (s *server) get(ctx context.Context, name string, query url.Values, offset int64) (io.ReadCloser, error) {
	u := *s.url
	u.Path, u.RawQuery = path.Join(u.Path, name), query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	want := http.StatusOK
	if offset > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		want = http.StatusPartialContent
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == want {
		return response.Body, nil
	}
	defer response.Body.Close()
	return nil, refusal(response, name)
}

// refusal returns the error for an answer without the content.
func refusal(response *http.Response, name string) error {
	body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	err := client.Readable(fmt.Errorf("the server answers %s: %s", response.Status, strings.TrimSpace(string(body))), body)
	switch response.StatusCode {
	case http.StatusUnauthorized:
		return fmt.Errorf("%w: %w", fs.ErrPermission, err)
	case http.StatusForbidden:
		return fmt.Errorf("%w: %w; the policy must allow the verb get on the nonResourceURL %s*", fs.ErrPermission, err, logapi.Prefix)
	case http.StatusNotFound:
		if name == logapi.StatePath {
			err = fmt.Errorf("the server has no %s: it is older than this program, or it is no stele", name)
		}
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}
