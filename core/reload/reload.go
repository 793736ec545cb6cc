// Package reload reads files again while the program runs, so that what they say can change
// without a start. It looks at them now and then instead of watching them: a name may be a link
// into folders that are replaced as a whole, or on a file system that tells nothing.
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
)

// ErrLater is wrapped by what File.Load returns if the same content may be right at another time.
var ErrLater = errors.New("it is tried again")

// most is how large a file may be. It is read each time that it is looked at.
const most = 16 << 20

// Read returns the content of a file. Anything but a file of a size that one looks through is an error: to read a
// device or a pipe may not end.
func Read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // of a pipe, it does not wait for who writes
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

// Unchanged tells who loads by reading again whether that was the same content: what read, which may be nil, returns
// now for the path. Otherwise the error wraps ErrLater.
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

// File is one whose content is in use, and may change.
type File struct {
	Path string
	// Read returns all that Load depends on; nil: what is in Path.
	Read func() ([]byte, error)
	// Content is what is in use from the beginning.
	Content []byte
	// Load puts another content in use. If it cannot be, what was in use must stay. The same content
	// is not tried twice in a row, unless the error wraps ErrLater.
	Load func(ctx context.Context, content []byte) error
	// Outcome hears what Load said, and, once, why the file cannot be read.
	Outcome func(error)
}

// look is what was seen of a file: its content, or that there is none.
type look struct {
	digest [sha256.Size]byte
	err    string
}

// Run looks at the file that often until the context ends. A content counts once it was seen twice
// in a row: who writes in place has then finished.
func (f *File) Run(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	read := f.Read
	if read == nil {
		read = func() ([]byte, error) { return Read(f.Path) }
	}
	tried := look{digest: sha256.Sum256(f.Content)}
	seen := tried
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
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
}

// Files is what is in several files, as one content: another one whenever one of them is.
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

// Kubeconfig reads how a server is reached from a kubeconfig and from the certificates and keys that it
// names, so that clients need no file any more. The content is all of that.
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

// client is how the server of a kubeconfig is reached: of that alone, where Kubernetes' library would ask the cluster that this program
// runs in, if what is there says nothing yet. The rest is as that has it for webhooks.
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
	const noLimit = -1 // who is asked limits the requests
	config.Timeout, config.QPS = 30*time.Second, noLimit
	return config, nil
}

// appendPart keeps parts apart: what goes over from one to the next is another content.
func appendPart(content, part []byte) []byte { return fmt.Appendf(content, "%d:%s", len(part), part) }
