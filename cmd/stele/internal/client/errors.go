package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Readable returns the message of a Status in the body as an error, or else err.
func Readable(err error, body []byte) error {
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Message == "" {
		return err
	}
	if future := tooLarge.FindStringSubmatch(status.Message); future != nil {
		return fmt.Errorf("revision %s does not exist; the newest is %s", future[1], future[2])
	}
	if status.Code == http.StatusUnauthorized {
		return fmt.Errorf("the server does not accept the kubeconfig's credentials (%s)", status.Message)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// tooLarge matches Kubernetes' message about a revision that does not exist yet.
var tooLarge = regexp.MustCompile(`Too large resource version: (\d+), current: (\d+)$`)

// ErrorText returns the message of an error. For a refused connection it names the server instead of the request.
func ErrorText(err error) string {
	text := err.Error()
	var asking *url.Error
	if !errors.As(err, &asking) || !errors.Is(err, syscall.ECONNREFUSED) {
		return text
	}
	server, parseErr := url.Parse(asking.URL)
	if parseErr != nil {
		return text
	}
	return strings.Replace(text, asking.Error(), "the connection to the server "+server.Host+" was refused: does it run, and is that its address?", 1)
}
