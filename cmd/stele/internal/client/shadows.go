package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/shadow"
)

// ErrNoShadow is the error if the server that answers has no shadow policy.
var ErrNoShadow = errors.New("no proposed policy decides beside the one in force on the server that answers; start one with stele policy shadow start DIR")

// StartShadow lets a proposed policy decide beside the one in force. For a policy that is too large for one request it
// first uploads the files that the server lacks.
func (c *Policies) StartShadow(ctx context.Context, spec shadow.Spec) (*shadow.Shadow, error) {
	encode := func(files []activation.File) ([]byte, error) {
		spec.Files = files
		return json.Marshal(&shadow.Shadow{TypeMeta: metav1.TypeMeta{APIVersion: shadow.Group + "/" + shadow.Version, Kind: shadow.Kind}, Spec: spec})
	}
	files := &activation.Spec{Package: spec.Package, Files: spec.Files}
	return sendFiles(ctx, c, files, encode, func(text []byte) (*shadow.Shadow, error) { return c.postShadow(ctx, text) })
}

func (c *Policies) postShadow(ctx context.Context, text []byte) (*shadow.Shadow, error) {
	text, err := c.rest.Post().Resource(shadow.Plural).SetHeader("Content-Type", "application/json").Body(text).Do(ctx).Raw() // DoRaw ignores warnings
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, errors.New("a proposed policy decides beside the one in force already; end it with stele policy shadow stop")
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: if the server does not know shadows, it is of an earlier version", Readable(err, text))
	case err != nil:
		return nil, &unread{Readable(err, text), err, text}
	}
	s := new(shadow.Shadow)
	return s, json.Unmarshal(text, s)
}

// Shadow returns the shadow of the server that answers, with what it has found.
func (c *Policies) Shadow(ctx context.Context) (*shadow.Shadow, error) {
	text, err := c.rest.Get().Resource(shadow.Plural).Name(shadow.Name).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, ErrNoShadow
	}
	if err != nil {
		return nil, Readable(err, text)
	}
	s := new(shadow.Shadow)
	return s, json.Unmarshal(text, s)
}

// StopShadow ends the shadow of the server that answers.
func (c *Policies) StopShadow(ctx context.Context) error {
	text, err := c.rest.Delete().Resource(shadow.Plural).Name(shadow.Name).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return ErrNoShadow
	}
	if err != nil {
		return Readable(err, text)
	}
	return nil
}
