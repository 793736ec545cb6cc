package buckets_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/cmd/stele/internal/buckets"
)

// s3 is a server of the S3 protocol, with a bucket.
type s3 struct {
	url string
	// parts counts the uploads of parts of files, and pages the lists.
	parts, pages atomic.Int64
	// failures is how many of the next requests fail.
	failures atomic.Int64
}

// newS3 starts a server that checks signatures, and sets the environment for its only user.
func newS3(t *testing.T) *s3 {
	t.Helper()
	backend, s := s3mem.New(), &s3{}
	require.NoError(t, backend.CreateBucket(t.Context(), "stele"))
	server := gofakes3.New(backend, gofakes3.WithV4Auth(map[string]string{"user": "secret"})).Server()
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch {
		case s.failures.Add(-1) >= 0:
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		case q.URL.Query().Has("partNumber"):
			s.parts.Add(1)
		case q.URL.Query().Has("list-type"):
			s.pages.Add(1)
		}
		server.ServeHTTP(w, q)
	}))
	t.Cleanup(listener.Close)
	s.url = listener.URL
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "",
		"AWS_CONFIG_FILE": filepath.Join(t.TempDir(), "config"), "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(t.TempDir(), "credentials"),
		"AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	return s
}

// place names a folder of the bucket, with further parameters.
func (s *s3) place(folder, parameters string) string {
	return fmt.Sprintf("s3://stele%s?region=eu-central-1&s3ForcePathStyle=true&endpoint=%s%s", folder, s.url, parameters)
}

func open(t *testing.T, place string) *buckets.Place {
	t.Helper()
	p, err := buckets.OpenShared(t.Context(), place)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

func content(t *testing.T, p *buckets.Place, name string) []byte {
	t.Helper()
	r, err := p.Open(t.Context(), name)
	require.NoError(t, err)
	defer r.Close()
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	return got
}

func TestLargeFilesAreSentToS3InParts(t *testing.T) {
	server := newS3(t)
	p := open(t, server.place("/a", ""))
	large := make([]byte, 20<<20+1)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(large)
	require.NoError(t, p.Put(t.Context(), "large", bytes.NewReader(large), int64(len(large))))
	assert.True(t, bytes.Equal(large, content(t, p, "large")))
	assert.Greater(t, server.parts.Load(), int64(1))
}

func TestListsOfS3HaveAllPages(t *testing.T) {
	server := newS3(t)
	p, want := open(t, server.place("", "")), []string{}
	for i := range 1001 { // a page has at most 1,000
		name := fmt.Sprintf("many/%04d", i)
		want = append(want, name)
		require.NoError(t, p.Put(t.Context(), name, bytes.NewReader(nil), 0))
	}
	entries, err := p.List(t.Context(), "many/")
	require.NoError(t, err)
	got := []string{}
	for _, e := range entries {
		got = append(got, e.Name)
	}
	slices.Sort(got)
	assert.Equal(t, want, got)
	assert.Greater(t, server.pages.Load(), int64(1))
}

func TestRequestsToS3AreTriedAgain(t *testing.T) {
	server := newS3(t)
	p := open(t, server.place("", ""))
	server.failures.Store(1)
	require.NoError(t, p.Put(t.Context(), "file", strings.NewReader("text"), 4))
	server.failures.Store(1)
	assert.Equal(t, "text", string(content(t, p, "file")))
}

// TestCredentialsOfS3 finds them where the AWS command line has them, and uses no others.
func TestCredentialsOfS3(t *testing.T) {
	keys := func(id, secret string) string {
		return fmt.Sprintf("aws_access_key_id = %s\naws_secret_access_key = %s\n", id, secret)
	}
	for name, c := range map[string]struct {
		environment         map[string]string
		config, credentials string
		parameters          string
		refused             bool
	}{
		"environment":             {environment: map[string]string{"AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "secret"}},
		"another secret":          {environment: map[string]string{"AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "guess"}, refused: true},
		"another user":            {environment: map[string]string{"AWS_ACCESS_KEY_ID": "other", "AWS_SECRET_ACCESS_KEY": "secret"}, refused: true},
		"none":                    {refused: true},
		"nobody":                  {parameters: "&anonymous=true", refused: true},
		"file of credentials":     {credentials: "[default]\n" + keys("user", "secret")},
		"profile of the URL":      {credentials: "[default]\n" + keys("user", "guess") + "[ops]\n" + keys("user", "secret"), parameters: "&profile=ops"},
		"profile of the variable": {environment: map[string]string{"AWS_PROFILE": "ops"}, config: "[profile ops]\n" + keys("user", "secret")},
		"process":                 {config: "[default]\ncredential_process = echo '{\"Version\": 1, \"AccessKeyId\": \"user\", \"SecretAccessKey\": \"secret\"}'\n"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newS3(t)
			for _, variable := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
				t.Setenv(variable, "")
			}
			for variable, value := range c.environment {
				t.Setenv(variable, value)
			}
			for variable, text := range map[string]string{"AWS_CONFIG_FILE": c.config, "AWS_SHARED_CREDENTIALS_FILE": c.credentials} {
				require.NoError(t, os.WriteFile(os.Getenv(variable), []byte(text), 0o600))
			}
			err := open(t, server.place("", c.parameters)).Put(t.Context(), "file", strings.NewReader("text"), 4)
			if !c.refused {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			require.NotErrorIs(t, err, fs.ErrNotExist)
		})
	}
}

func TestURLsOfS3(t *testing.T) {
	server := newS3(t)
	for parameters, want := range map[string]string{
		"": "", "&use_path_style=true": "", "&fips=false&dualstack=false&accelerate=false": "", "&ssetype=AES256": "", "&rate_limiter_capacity=10": "",
		"&request_checksum_calculation=when_required&response_checksum_validation=when_required": "",
		"&other=1": "other", "&ssetype=other": "ssetype", "&accelerate=maybe": "accelerate", "&role=admin": "role",
	} {
		t.Run(parameters, func(t *testing.T) {
			p, err := buckets.OpenShared(t.Context(), server.place("/a", parameters))
			if want != "" {
				require.ErrorContains(t, err, want)
				return
			}
			require.NoError(t, err)
			defer p.Close()
			require.NoError(t, p.Put(t.Context(), "file", strings.NewReader("text"), 4))
			assert.Equal(t, "text", string(content(t, p, "file")))
		})
	}
	_, err := open(t, strings.Replace(server.place("", ""), "s3://stele", "s3://other", 1)).Open(t.Context(), "file")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
