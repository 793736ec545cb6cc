package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/cmd/stele/internal/progress"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/projections/policies"
)

const (
	// maxWhole limits the size of a policy that is sent in one request. Servers accept requests of 3 MiB.
	maxWhole = 3 << 20
	// maxUpload limits the bytes of parts in one request, which are sent as Base64.
	maxUpload = 2 << 20
	// uploads is how often missing parts are uploaded. The first upload has all new parts, later ones the parts that the
	// server has dropped meanwhile.
	uploads = 3
)

// Create pushes a policy. For a policy that is too large for one request it first uploads the files that the server
// lacks.
func (c *Policies) Create(ctx context.Context, p *activation.Policy, dryRun bool) (*activation.Policy, error) {
	encode := func(files []activation.File) ([]byte, error) {
		sent := *p
		sent.Spec.Files = files
		return json.Marshal(&sent)
	}
	return sendFiles(ctx, c, &p.Spec, encode, func(text []byte) (*activation.Policy, error) { return c.post(ctx, text, dryRun) })
}

// sendFiles sends a request that has the files of a policy. If it is too large, it is sent without the contents of the
// files, which are uploaded before, as far as the server lacks them.
func sendFiles[T any](ctx context.Context, c *Policies, spec *activation.Spec, encode func([]activation.File) ([]byte, error), post func([]byte) (*T, error)) (*T, error) {
	size := 0
	for _, f := range spec.Files {
		size += len(f.Data)
	}
	progress.Doing(ctx, "waiting for the server")
	defer progress.Doing(ctx, "")
	if size < maxWhole {
		text, err := encode(spec.Files)
		if err != nil {
			return nil, err
		}
		if len(text) <= maxWhole {
			return post(text)
		}
	}
	inParts, parts := activation.InParts(spec.Source())
	text, err := encode(inParts.Files)
	if err != nil {
		return nil, err
	}
	for range uploads {
		answer, err := post(text)
		missing := missingParts(err, parts)
		if len(missing) == 0 {
			return answer, err
		}
		if err := c.upload(ctx, missing); err != nil {
			return nil, err
		}
		progress.Doing(ctx, "the server works on %s", mebibytes(size))
	}
	return nil, errors.New("the server dropped parts of the policy meanwhile; try again")
}

// post sends a policy as JSON.
func (c *Policies) post(ctx context.Context, text []byte, dryRun bool) (*activation.Policy, error) {
	q := c.rest.Post().Resource(activation.Plural).SetHeader("Content-Type", "application/json").Body(text)
	if dryRun {
		q = q.Param("dryRun", metav1.DryRunAll)
	}
	text, err := q.Do(ctx).Raw() // DoRaw ignores warnings
	if err != nil {
		return nil, &unread{Readable(err, text), err, text}
	}
	after := new(activation.Policy)
	return after, json.Unmarshal(text, after)
}

// unread is an API error with a readable message and the body of the answer.
type unread struct {
	error
	api  error
	body []byte
}

func (u *unread) Unwrap() error { return u.api }

// missingParts returns the parts that the server says it lacks.
func missingParts(err error, parts map[policies.Digest][]byte) (missing [][]byte) {
	var u *unread
	var status metav1.Status
	if !errors.As(err, &u) || !apierrors.IsInvalid(u.api) || json.Unmarshal(u.body, &status) != nil || status.Details == nil {
		return nil
	}
	seen := map[policies.Digest]bool{}
	for _, cause := range status.Details.Causes {
		d, err := policies.ParseDigest(cause.Message)
		if err != nil || cause.Type != metav1.CauseTypeFieldValueNotFound || parts[d] == nil {
			return nil
		}
		if !seen[d] {
			seen[d] = true
			missing = append(missing, parts[d])
		}
	}
	return missing
}

// upload sends parts of a policy.
func (c *Policies) upload(ctx context.Context, parts [][]byte) error {
	total, sent := 0, 0
	for _, part := range parts {
		total += len(part)
	}
	for len(parts) > 0 {
		u := activation.Upload{TypeMeta: metav1.TypeMeta{APIVersion: activation.Group + "/" + activation.Version, Kind: activation.UploadKind}}
		size := 0
		for len(parts) > 0 && (size == 0 || size+len(parts[0]) <= maxUpload) {
			u.Parts, size, parts = append(u.Parts, parts[0]), size+len(parts[0]), parts[1:]
		}
		progress.Doing(ctx, "uploading %s of %s", mebibytes(sent), mebibytes(total))
		if _, err := post(ctx, c.rest, u, activation.Plural, activation.Parts); err != nil {
			return err
		}
		sent += size
	}
	return nil
}

// mebibytes formats a size.
func mebibytes(n int) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
