package authz

import (
	"context"
	"errors"

	"stele.dev/stele/core/reload"
)

// follow puts a file of the operator's in use, unless there is none, and again when what is read of it, and of
// what it names, is another content.
func (a *Authorizers) follow(flag, path string, read func() ([]byte, error), load func([]byte) error) {
	if path == "" {
		return
	}
	f := &reload.File{Path: path, Read: read, Load: func(_ context.Context, content []byte) error { return load(content) }}
	f.Content, _ = read() // what is wrong with it is said when it is loaded
	f.Outcome = func(err error) {
		if err != nil {
			a.logger.Error("a changed file cannot be used; what it said before stays in use", "flag", flag, "file", path, "error", err)
			return
		}
		a.logger.Info("a changed file is in use", "flag", flag, "file", path)
	}
	a.files = append(a.files, f)
}

// Reload reads the operator's files anew. What cannot be read stays as it was.
func (a *Authorizers) Reload() error {
	var errs []error
	for _, f := range a.files {
		content, err := f.Read()
		if err == nil {
			err = f.Load(context.Background(), content)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
