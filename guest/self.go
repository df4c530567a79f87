package guest

// Program is the name under which a process of a container can be the guest program itself, for what no image needs to
// have: "sftp" serves SFTP on its standard streams, and "listen PORT" forwards connections to a port of the loopback.
const Program = "berth-guest"
