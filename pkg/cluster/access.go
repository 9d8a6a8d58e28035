package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig asks the control plane of a cluster that flatline made for its administrator's
// access and writes it into a private file, mode 0600, in the place of what is there.
// Only certificates and a key are taken over, and the server is the port that the engine
// has published on this machine.
func WriteKubeconfig(ctx context.Context, name, path string) error {
	if err := writeKubeconfig(ctx, name, path); err != nil {
		return fmt.Errorf("writing the kubeconfig of cluster %s: %w", name, err)
	}
	return nil
}

func writeKubeconfig(ctx context.Context, name, path string) error {
	c, err := open(ctx, name, "")
	if err != nil {
		return err
	}
	control := c.nodes[0]
	admin, err := control.output(ctx, "cat", "/etc/kubernetes/admin.conf")
	if err != nil {
		return err
	}
	published, err := docker(ctx, nil, "port", control.Name, "6443/tcp")
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(published, "\n")
	_, port, err := net.SplitHostPort(strings.TrimSpace(first))
	if err != nil {
		return fmt.Errorf("the port of the API server: %w", err)
	}
	text, err := accessOf(admin, name, "https://127.0.0.1:"+port)
	if err != nil {
		return fmt.Errorf("reading /etc/kubernetes/admin.conf of %s: %w", control.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".kubeconfig-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// accessOf makes a kubeconfig of the keys in another one.
func accessOf(admin, name, server string) ([]byte, error) {
	file, err := clientcmd.Load([]byte(admin))
	if err != nil {
		return nil, err
	}
	if len(file.Clusters) != 1 || len(file.AuthInfos) != 1 {
		return nil, errors.New("it is not about one cluster and one user")
	}
	access := clientcmdapi.NewConfig()
	for _, c := range file.Clusters {
		access.Clusters["kind-"+name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: c.CertificateAuthorityData}
	}
	for _, u := range file.AuthInfos {
		access.AuthInfos["kind-"+name] = &clientcmdapi.AuthInfo{ClientCertificateData: u.ClientCertificateData, ClientKeyData: u.ClientKeyData}
		if len(u.ClientCertificateData) == 0 || len(u.ClientKeyData) == 0 {
			return nil, errors.New("it has no certificate and key in it")
		}
	}
	access.Contexts["kind-"+name] = &clientcmdapi.Context{Cluster: "kind-" + name, AuthInfo: "kind-" + name}
	access.CurrentContext = "kind-" + name
	return clientcmd.Write(*access)
}

// clientConfig reads a kubeconfig that has to be about this cluster alone, since it is
// going to be deleted with it, and must lead nowhere else.
func clientConfig(path, name string) (*rest.Config, error) {
	file, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	cluster, ok := file.Clusters["kind-"+name]
	if !ok || len(file.Clusters) != 1 {
		return nil, fmt.Errorf("it is not about kind-%s alone", name)
	}
	server, err := url.Parse(cluster.Server)
	if err != nil || server.Scheme != "https" || server.Hostname() != "127.0.0.1" || cluster.ProxyURL != "" {
		return nil, fmt.Errorf("server %q: want https://127.0.0.1 and a port, without a proxy", cluster.Server)
	}
	for user, u := range file.AuthInfos {
		if u.Exec != nil || u.AuthProvider != nil || u.TokenFile != "" {
			return nil, fmt.Errorf("user %s: want a certificate and a key, and no program to ask", user)
		}
	}
	return clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
}
