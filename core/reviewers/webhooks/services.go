package webhooks

import (
	"fmt"
	"net"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// services is the operator's table of services. It is immutable.
type services struct {
	addresses map[endpoint]string // host:port
}

// endpoint is a port of a service; port 0 stands for every port that has no line of its own.
type endpoint struct {
	namespace, name string
	port            int32
}

// The type and version of the file with the table.
const (
	tableVersion = "stele.dev/v1"
	tableKind    = "WebhookServices"
)

// loadServices replaces the table.
func (w *Webhooks) loadServices(content []byte) error {
	s, err := parseServices(content)
	if err != nil {
		return fmt.Errorf("%s: %w", w.options.ServicesFile, err)
	}
	w.services.Store(s)
	w.files.InUse("webhook-services", content)
	return nil
}

// parseServices reads a table, in YAML or JSON. It rejects unknown fields, and services that stand there twice.
func parseServices(content []byte) (*services, error) {
	var table struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Services   []struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
			Port      int32  `json:"port"`
			Address   string `json:"address"`
		} `json:"services"`
	}
	if err := yaml.UnmarshalStrict(content, &table); err != nil {
		return nil, err
	}
	if table.APIVersion != tableVersion || table.Kind != tableKind {
		return nil, fmt.Errorf("want apiVersion %s and kind %s, not %q and %q", tableVersion, tableKind, table.APIVersion, table.Kind)
	}
	s := &services{addresses: map[endpoint]string{}}
	for i, x := range table.Services {
		at := endpoint{x.Namespace, x.Name, x.Port}
		host, port, err := net.SplitHostPort(x.Address)
		switch _, known := s.addresses[at]; {
		case len(validation.IsDNS1123Label(x.Namespace)) > 0 || len(validation.IsDNS1035Label(x.Name)) > 0:
			return nil, fmt.Errorf("services[%d]: %q in %q can be the name of no service", i, x.Name, x.Namespace)
		case x.Port < 0 || x.Port > 65535:
			return nil, fmt.Errorf("services[%d].port: %d is no port", i, x.Port)
		case err != nil || host == "" || !isPort(port):
			return nil, fmt.Errorf("services[%d].address: want HOST:PORT, not %q", i, x.Address)
		case known:
			return nil, fmt.Errorf("services[%d]: %s/%s port %d stands in the table twice", i, x.Namespace, x.Name, x.Port)
		}
		s.addresses[at] = x.Address
	}
	return s, nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// ResolveEndpoint implements the ServiceResolver of k8s.io/apiserver.
func (s *services) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	address, ok := s.addresses[endpoint{namespace, name, port}]
	if !ok {
		address, ok = s.addresses[endpoint{namespace, name, 0}]
	}
	if !ok {
		return nil, fmt.Errorf("the service %s/%s port %d is not in the table of this replica: add it to the file of --webhook-services", namespace, name, port)
	}
	return &url.URL{Scheme: "https", Host: address}, nil
}
