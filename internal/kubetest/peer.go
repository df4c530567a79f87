package kubetest

import (
	"net/http"
	"time"
)

// peerName is a node that only sends heartbeats: the controller manager takes
// the loss of all nodes for its own, and evicts no Pod then. No Pod is scheduled to it.
const peerName = "peer"

const heartbeat = 2 * time.Second

func (c *Cluster) addPeer() error {
	now := func() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000Z") }
	lease := "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	for _, o := range []struct {
		method, path string
		body         object
	}{
		{http.MethodPost, "/api/v1/nodes",
			object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": peerName},
				"spec": object{"unschedulable": true}}},
		{http.MethodPatch, "/api/v1/nodes/" + peerName + "/status", object{"status": object{"conditions": []any{
			object{"type": "Ready", "status": "True", "reason": "KubeletReady",
				"lastHeartbeatTime": time.Now().UTC().Format(time.RFC3339)}}}}},
		{http.MethodPost, lease,
			object{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{"name": peerName},
				"spec": object{"holderIdentity": peerName, "leaseDurationSeconds": 40, "renewTime": now()}}},
	} {
		if err := c.Request(o.method, o.path, o.body, nil); err != nil {
			return err
		}
	}
	go func() { // ends with the process
		for range time.Tick(heartbeat) {
			_ = c.Request(http.MethodPatch, lease+"/"+peerName, object{"spec": object{"renewTime": now()}}, nil)
		}
	}()
	return nil
}
