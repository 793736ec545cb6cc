// Package reload reads files again while the program runs, so that changes need no restart. It reads the files at
// intervals instead of watching them: a path may lead through links to folders that are replaced as a whole, or be on
// a file system that sends no notifications.
package reload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"stele.dev/stele/limits/steady"
)

// ErrLater is wrapped by errors of File.Load for content that may become valid later.
var ErrLater = errors.New("it is tried again")

// most limits the size of a file, because it is read at each interval.
const most = 16 << 20

// Read returns the content of a file. It returns an error for anything but a regular file of reasonable size: reading
// a device or a pipe may never end.
func Read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // do not wait for the writer of a pipe
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(content) > most {
		err = fmt.Errorf("%s has more than %d MiB", path, most>>20)
	}
	return content, err
}

// Unchanged is for a Load that reads the file again itself: it returns an error that wraps ErrLater unless the content
// is still the same. read returns the content; nil means that of the path.
func Unchanged(path string, read func() ([]byte, error), content []byte) error {
	if read == nil {
		read = func() ([]byte, error) { return Read(path) }
	}
	now, err := read()
	if err == nil && !bytes.Equal(now, content) {
		err = errors.New("it was changed while it was read")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrLater)
	}
	return nil
}

// File is a file whose content is in use and may change.
type File struct {
	Path string
	// Read returns everything that Load depends on; nil means the content of Path.
	Read func() ([]byte, error)
	// Content is the content in use at the start.
	Content []byte
	// Load puts new content in use. If it fails, it must keep the old content in use. The same content is not tried
	// twice in a row, unless the error wraps ErrLater.
	Load func(ctx context.Context, content []byte) error
	// Outcome receives the result of Load, and, once, why the file cannot be read.
	Outcome func(error)
}

// look is the content of a file, or that there is none.
type look struct {
	digest [sha256.Size]byte
	err    string
}

// Run reads the file at intervals until the context ends. New content counts when it was read twice in a row, so that
// a writer has finished.
func (f *File) Run(ctx context.Context, every time.Duration) error {
	read := f.Read
	if read == nil {
		read = func() ([]byte, error) { return Read(f.Path) }
	}
	tried := look{digest: sha256.Sum256(f.Content)}
	seen := tried
	for range steady.Every(ctx, every) {
		content, err := read()
		now := look{digest: sha256.Sum256(content)}
		if err != nil {
			now.err = err.Error()
		}
		before := seen
		if seen = now; now != before || now == tried {
			continue
		}
		tried = now
		if err == nil {
			err = f.Load(ctx, content)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrLater) {
			tried = look{}
		}
		f.Outcome(err)
	}
	return ctx.Err()
}

// Files returns the contents of several files as one.
func Files(paths ...string) ([]byte, error) {
	var content []byte
	for _, path := range paths {
		part, err := Read(path)
		if err != nil {
			return nil, err
		}
		content = appendPart(content, part)
	}
	return content, nil
}

// Kubeconfig returns the client configuration in a kubeconfig, with the certificates and keys that it names, so that
// clients need no files. content is the content of all these files.
func Kubeconfig(path string) (config *rest.Config, content []byte, err error) {
	if content, err = Files(path); err != nil {
		return nil, nil, err
	}
	if config, err = client(path); err == nil {
		err = rest.LoadTLSFiles(config)
	} else if text, readErr := Read(path); readErr == nil {
		if _, loadErr := clientcmd.Load(text); runtime.IsNotRegisteredError(loadErr) {
			err = fmt.Errorf("%s is no kubeconfig: want one, of apiVersion v1 and kind Config", path)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	for _, part := range [][]byte{config.CAData, config.CertData, config.KeyData} {
		content = appendPart(content, part)
	}
	return config, content, nil
}

// client returns the client configuration in a kubeconfig. Unlike Kubernetes' library, it never uses the cluster that
// this program runs in. All else is as for Kubernetes' webhooks.
func client(path string) (*rest.Config, error) {
	says, err := clientcmd.LoadFromFile(path)
	if err == nil {
		err = clientcmd.ResolveLocalPaths(says)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*says, says.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("%s names no server: want a kubeconfig with a current context", path)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	const noLimit = -1 // the caller limits the requests
	config.Timeout, config.QPS = 30*time.Second, noLimit
	return config, nil
}

// appendPart appends a part with its length, so that different parts never have equal content.
func appendPart(content, part []byte) []byte { return fmt.Appendf(content, "%d:%s", len(part), part) }
