import wandb, os
s=wandb.Settings(silent=True,host="host",x_disable_stats=True,x_disable_meta=True,disable_git=True,disable_code=True,console="off",x_save_requirements=False)
r=wandb.init(mode="offline",project="p",name="exp",id="abcd1234",config={"a":1,"b":{"c":2.5,"d":"x"},"long":"a"*33000},dir=".",settings=s)
r.log({"actor/pg_loss":0.5,"x":float("nan")},step=1)
r.log({"actor/pg_loss":0.25,"x":float("inf")},step=2)
r.finish()
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.compat.proto import event_pb2, summary_pb2
w=EventFileWriter("tb")
for step,v in [(1,0.5),(2,float("nan"))]:
    w.add_event(event_pb2.Event(wall_time=1000.5+step,step=step,summary=summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="actor/pg_loss",simple_value=v),summary_pb2.Summary.Value(tag="b",simple_value=2.0)])))
w.close()
